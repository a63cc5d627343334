package controllers

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	examplev1 "example.dev/website/api/v1"
)

const finalizer = "example.dev/dns"

type WebsiteReconciler struct {
	client.Client
	Recorder events.EventRecorder
	DNS      *DNS
}

func (r *WebsiteReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&examplev1.Website{}).
		Owns(&appsv1.Deployment{}).
		Complete(r)
}

func (r *WebsiteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site examplev1.Website
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	if !site.DeletionTimestamp.IsZero() {
		if controllerutil.ContainsFinalizer(&site, finalizer) {
			if err := r.DNS.Remove(ctx, site.Name); err != nil {
				return ctrl.Result{}, err
			}
			controllerutil.RemoveFinalizer(&site, finalizer)
			return ctrl.Result{}, r.Update(ctx, &site)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&site, finalizer) {
		if err := r.Update(ctx, &site); err != nil {
			return ctrl.Result{}, err
		}
	}

	if err := r.DNS.Ensure(ctx, site.Name); err != nil {
		return ctrl.Result{}, err
	}

	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace}}
	result, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"website": site.Name}
		deployment.Spec.Replicas = &site.Spec.Replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		if len(deployment.Spec.Template.Spec.Containers) == 0 {
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web"}}
		}
		deployment.Spec.Template.Spec.Containers[0].Image = site.Spec.Image
		return ctrl.SetControllerReference(&site, deployment, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if result == controllerutil.OperationResultCreated {
		r.Recorder.Eventf(&site, deployment, corev1.EventTypeNormal, "Created", "Create", "%s is there", deployment.Name)
	}

	// The cache may still hold the Deployment of before; the next event corrects what is written here.
	if site.Status.ReadyReplicas != deployment.Status.ReadyReplicas {
		site.Status.ReadyReplicas = deployment.Status.ReadyReplicas
		return ctrl.Result{}, r.Status().Update(ctx, &site)
	}
	return ctrl.Result{}, nil
}
